module dev.cosid/bench

go 1.26.0

require github.com/bwmarrin/snowflake v0.3.0
