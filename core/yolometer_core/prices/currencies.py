"""Currencies: the alphabetic codes of ISO 4217, list one as of 2026-01-01, and those withdrawn since 2021 (for old prices).

Left out are the codes that are no money of a bill: metals, bond market units, accounting units of banks, tests, "no currency".
A table and no package: a list of 170 codes that changes once or twice a year is not worth a dependency on every GPU node.
"""

from __future__ import annotations

import difflib

ACTIVE = frozenset(
    """
    AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BHD BIF BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE CHF CHW CLF CLP
    CNY COP COU CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS
    INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR
    MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD
    SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD USN UYI UYU UYW UZS VED VES VND VUV WST
    XAF XCD XCG XOF XPF YER ZAR ZMW ZWG
    """.split()  # noqa: SIM905  # easier to read and to compare
)
COMMON = ("USD", "EUR", "GBP", "CHF", "JPY", "CNY", "INR", "CAD", "AUD", "KRW", "SEK", "PLN", "BRL", "SGD")
"""What is most likely meant by something like it."""
CALLED = {"$": "USD", "US$": "USD", "€": "EUR", "EURO": "EUR", "£": "GBP", "¥": "JPY", "YEN": "JPY", "RMB": "CNY"}
"""What people write for some of them."""
WITHDRAWN = frozenset(("ANG", "BGN", "CUC", "HRK", "SLL", "ZWL"))


def is_currency(code: str) -> bool:
    """Whether it is a currency, as ISO 4217 writes it: three capital letters."""
    return code in ACTIVE or code in WITHDRAWN


def nearest(code: str) -> str:
    """The currency that was probably meant, as half a sentence."""
    wanted = code.strip().upper()
    if wanted in CALLED:
        return f"did you mean {CALLED[wanted]!r}"
    near = [known for known in COMMON if sorted(known) == sorted(wanted)]  # two letters that changed places
    near += difflib.get_close_matches(wanted, COMMON, n=1, cutoff=0.6) + difflib.get_close_matches(wanted, sorted(ACTIVE), n=1)
    return f"did you mean {near[0]!r}" if near else "write three capital letters as in ISO 4217, for example USD"
