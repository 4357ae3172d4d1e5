"""Text that tries to do something on a page: what people, models, nodes and tools may hand us.

`MARK` stands in every one of them, so that a test can see that the text itself is shown.
"""

from __future__ import annotations

from typing import Final

MARK: Final = "zqx"

# Whatever of these ran would call this; the browser tests look whether it was.
ALARM: Final = "document.documentElement.setAttribute('data-alarm','1')"

PLAIN: Final = (
    f"{MARK}<script>{ALARM}</script>",
    f'{MARK}<img src=x onerror="{ALARM}">',
    f'{MARK}"><svg onload="{ALARM}">',
    f"{MARK}'\"--></style></title></textarea></pre><script>{ALARM}</script>",
    f'{MARK}<iframe srcdoc="<script>parent.{ALARM}</script>"></iframe>',
    f'{MARK}<a href="javascript:{ALARM}">press</a>',
    f'{MARK}<div hx-get="/audit" hx-trigger="load" hx-target="body">x</div>',
    f'{MARK}<form action="https://evil.example/"><button>Approve</button></form>',
    f"{MARK}<style>body{{background:url(https://evil.example/a.png)}}</style>",
    f"{MARK}<link rel=stylesheet href=https://evil.example/a.css><base href=https://evil.example/>",
    f"{MARK}<meta http-equiv=refresh content='0;url=https://evil.example/'>",
    f"{MARK}{{{{ 7*7 }}}} {{% raise %}} ${{7*7}}",
    f"{MARK}\u202egnp.exe\u2066",
    f"{MARK}<math><mtext></form><form><mglyph><style></math><img src onerror={ALARM}>",
)

MARKDOWN: Final = (
    f"{MARK} ![pixel](https://evil.example/pixel.png)",
    f"{MARK} ![pixel][p]\n\n[p]: https://evil.example/pixel.png",
    f"{MARK} [press](javascript:{ALARM})",
    f"{MARK} [press](JaVaScRiPt&colon;{ALARM})",
    f"{MARK} [press](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)",
    f"{MARK} [press](vbscript:msgbox)",
    f"{MARK} [press](//evil.example/x)",
    f"{MARK} [approve](/approvals/appr_1/approve)",
    f'{MARK} [press](https://evil.example/"onmouseover="{ALARM})',
    f"{MARK} <https://evil.example/?q=<script>>",
    f"{MARK} [a](<javascript:{ALARM}>) `<script>{ALARM}</script>`",
    f"{MARK}\n\n```html onload={ALARM}\n<script>{ALARM}</script>\n```",
    f"{MARK}\n\n| a<script>{ALARM}</script> | b |\n|---|---|\n| <img src=x onerror={ALARM}> | 2 |",
    f"# {MARK}<img src=x onerror={ALARM}>",
    f"> {MARK} <details open ontoggle={ALARM}>",
    f"{MARK} <!-- --><script>{ALARM}</script>",
)

ALL: Final = PLAIN + MARKDOWN
