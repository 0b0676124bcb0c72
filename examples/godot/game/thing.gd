# What a state looks like: an arrow if it has a direction, else a disc. DnpSync sets the properties.
extends Node2D

var on = 1 setget set_on
var colour = Color(1, 0.8, 0.6) setget set_colour
var arrow = false
var size = 10.0


func _draw():
	if arrow:
		draw_colored_polygon(PoolVector2Array([Vector2(9, 0), Vector2(-5, 5), Vector2(-2, 0), Vector2(-5, -5)]), colour)
	else:
		draw_circle(Vector2(), size, colour if on else Color(0.3, 0.3, 0.35))


func set_on(v):
	on = v
	update()


func set_colour(v):
	colour = v
	update()
