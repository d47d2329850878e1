{
  "uid": "cheapest",
  "description": "Data that must not cost money, if that can be had.",
  "priority": 10,
  "match": {
    "profile": {
      "value": "cheapest",
      "precedence": 1
    }
  },
  "properties": {
    "capacity_profile": {
      "value": "scavenger",
      "precedence": 1
    }
  }
}
