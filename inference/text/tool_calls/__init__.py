"""Tool calls in the text of a reply: how each kind of chat template writes them, constrains them and is read."""

from inference.text.tool_calls.formats import ToolFormat, format_of
from inference.text.tool_calls.grammar import ToolWish, reply_constraint
from inference.text.tool_calls.reader import Call, Piece, ReplyReader

__all__ = ["Call", "Piece", "ReplyReader", "ToolFormat", "ToolWish", "format_of", "reply_constraint"]
