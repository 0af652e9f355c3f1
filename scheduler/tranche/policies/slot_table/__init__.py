"""Slot tables: workers by time slot and machine, at prices that rise with use; OASiS and PD-ORS share them."""
