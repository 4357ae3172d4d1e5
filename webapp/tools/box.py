"""All tools, in the order in which a model is told of them."""

from __future__ import annotations

from webapp.chat.actions import Tool
from webapp.tools.nodes import ListNodes, SendTaskTool
from webapp.tools.schedules import ListSchedules, ProposeScheduleTool

TOOLS: tuple[Tool, ...] = (ListNodes(), SendTaskTool(), ListSchedules(), ProposeScheduleTool())
