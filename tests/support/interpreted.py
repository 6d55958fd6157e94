"""Imported, before cotan, by tests of many tiny kernels: interpreting them gives the same bits sooner than a compiler would.
`make test-all` compiles them."""
import os

if os.environ.get("COTAN_TEST_ALL") != "1":
    os.environ.setdefault("COTAN_CC", "none")
