import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import test from 'node:test'
import { fileURLToPath } from 'node:url'
import { folder } from './common.mjs'
import * as brooklet from 'brooklet'

const here = fileURLToPath(new URL('..', import.meta.url))

test('the programs of the README', t => {
  const dir = folder(t)
  const programs = [...readFileSync(join(here, 'README.md'), 'utf8').matchAll(/```js\n(.*?)```/gs)].map(found => found[1])
  assert.equal(programs.length, 2)
  const outputs = programs.map((program, n) => {
    // Below the folder with the package, so that it is found.
    const file = join(here, `program-${n}.mjs`)
    writeFileSync(file, program)
    const { status, stdout, stderr } = spawnSync(process.execPath, [file], { cwd: dir, encoding: 'utf8', timeout: 300_000 })
    assert.equal(status, 0, stderr)
    return stdout
  })
  assert.match(outputs[0], /^0 insert 'h' at 0\n1 insert 'i' at 1\n/)
  assert.equal(outputs[1], 'hello\n')
})

test('the types have every public name', () => {
  const require = createRequire(import.meta.url)
  const types = readFileSync(require.resolve('brooklet').replace(/\.js$/, '.d.ts'), 'utf8')
  for (const name of Object.keys(brooklet)) assert.match(types, new RegExp(`(class|function) ${name}\\b`))
  for (const { prototype } of [brooklet.Store, brooklet.Commit]) {
    for (const name of Object.getOwnPropertyNames(prototype)) {
      if (name !== 'constructor' && !name.startsWith('#')) assert.match(types, new RegExp(`\\*/\n  ${name}\\(`), `${name} is described`)
    }
  }
})
