"""Text about an object that cannot be read."""

from pydantic import ValidationError


def first_problem(error: ValidationError) -> str:
    """Return the path of the first invalid field and what is wrong with it."""
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
