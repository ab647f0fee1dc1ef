module brooklet

go 1.24
