"""What strategy discovery found as sentences, a page and JSON; `report.told` makes the record."""
