"""Headers of every answer: what a browser may do with it.

Strict enough that a hostile name that slipped through somewhere does nothing.
"""

CSP = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)

SECURITY_HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not no-referrer: with it a browser sends `Origin: null` with our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=()",
}


def add_security_headers(headers: dict[str, str]) -> dict[str, str]:
    """All headers of an answer. What is not said to be kept is kept nowhere: it may be somebody else's tomorrow."""
    return {"Cache-Control": "no-store"} | SECURITY_HEADERS | headers
