'use strict'

const { open, Store } = require('./store.js')
const { Commit } = require('./commit.js')
const { BrookletError } = require('./error.js')

module.exports = { open, Store, Commit, BrookletError }
