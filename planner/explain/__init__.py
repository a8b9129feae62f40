"""An estimate as people read it: tables, text, a page of pictures. Every figure says that it is predicted."""
