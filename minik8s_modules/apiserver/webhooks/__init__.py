"""Programs outside that are asked about writes: which one (rules), what (reviews), where (places), and how (transport).

``calls`` puts them together and is all that admission uses. ``conversions`` asks converters of custom kinds
(``conversion_reviews``: what, and what the answer means) by the same places and transport, with the same limits.
"""
