namespace quack {}
