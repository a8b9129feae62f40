"""An estimate as one page of HTML that needs nothing beside it: figures, pictures, tables."""
