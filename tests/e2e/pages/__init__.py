"""The pages as a person finds their way on them: by role and by label."""
