"""Slot tables: workers by slot and machine, at prices that rise with use; OASiS and PD-ORS share them."""
