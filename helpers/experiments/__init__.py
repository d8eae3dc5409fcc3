"""What this repository ran: every trained model, the methods of a table, the tables, the claims."""
