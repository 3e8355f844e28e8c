"""The one exception for wrong usage: its message is a single line naming the value and what was expected."""


class UserError(Exception):
    """Shown as `freestone: MESSAGE`, exit code 2, without a traceback."""
