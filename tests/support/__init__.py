"""What tests are made with: real databases, servers, processes and browsers."""
