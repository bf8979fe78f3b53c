"""Programs outside that are asked about writes: which one (rules), what (reviews), where (places), and how (transport).

``calls`` puts them together and is all that admission uses. ``Transport.post`` and ``Places.of`` serve every review
that goes out: a webhook of another sort (the conversion of custom resources) has the same client configuration, limits
and words for failures.
"""
