GREETING = "from-beside"
