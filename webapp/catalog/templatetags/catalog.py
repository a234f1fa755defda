"""Template filters that write sizes, counts and shares the way the registry's pages show them."""

from django import template

register = template.Library()


@register.filter
def size(value: float | None) -> str:
    """Return bytes as people write them: `138 MB`, decimal as the makers of disks and GPUs count."""
    if value is None:
        return "–"
    number = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if abs(number) < 999.5:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"


@register.filter
def count(value: float | None) -> str:
    """Return a whole number with thousands set apart."""
    return "–" if value is None else f"{value:,.0f}"


@register.filter
def parameters(value: float | None) -> str:
    """Return a count of parameters as model names write them: `135 M`, `70.6 B`."""
    if not value:
        return "–"
    for unit, step in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= step * 0.9995:
            return f"{value / step:.3g} {unit}"
    return f"{value:.0f}"


@register.filter
def rate(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


@register.filter
def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


@register.filter
def seconds(value: float | None) -> str:
    if value is None:
        return "–"
    if value < 1:
        return f"{value * 1000:.3g} ms"
    return f"{value:.3g} s"
