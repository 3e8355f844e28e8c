# Groups, maps and rebuilds a large array of objects.
[.[] | .score = (.values | add) | del(.values)]
| group_by(.city)
| map({city: .[0].city, people: length, best: (max_by(.score) | .name), total: (map(.score) | add),
       names: (map(.name | split(" ") | reverse | join("-")) | sort | .[0:3])})
| sort_by(-.people, .city)
| (.[0:5] | map(tostring) | .[]), (map(.people) | add), (tostring | length)
