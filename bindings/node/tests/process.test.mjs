import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { openSync, readFileSync, closeSync, truncateSync } from 'node:fs'
import { join } from 'node:path'
import test from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { Worker } from 'node:worker_threads'
import { open } from 'brooklet'
import { all, folder } from './common.mjs'
import { payload } from './kill-writer.mjs'

const here = fileURLToPath(new URL('.', import.meta.url))
const run = (program, path) => spawnSync(process.execPath, ['--input-type=module', '-e', program, path], { cwd: here, encoding: 'utf8', timeout: 300_000 })
const OPEN = "import { open } from 'brooklet'; const store = await open(process.argv[1]);"

test('an open store does not keep the process, and its writes are kept', async t => {
  const path = join(folder(t), 'store')
  const { status, stderr } = run(OPEN + "for (let n = 0; n < 1000; n++) store.append('log', `${n}`)", path)
  assert.equal(status, 0, stderr)
  const store = await open(path)
  assert.equal((await store.bounds('log')).next, 1000)
  await store.close()
})

test('process.exit with calls in flight: what was acknowledged is kept', async t => {
  const path = join(folder(t), 'store')
  const calls = {
    appends: '',
    'appends, a read and a tail': "store.tail('log', { start: 0 }).next(); store.last('log');"
  }
  for (const [name, others] of Object.entries(calls)) {
    const { status, stdout, stderr } = run(OPEN + `
      const acknowledged = []
      for (let n = 0; n < 20000; n++) {
        const append = store.append('log', 'x')
        append.then(seq => acknowledged.push(seq))
        if (n % 1000 === 0) await append
      }
      ${others}
      process.stdout.write(String(acknowledged.at(-1)))
      process.exit(0)`, path)
    assert.equal(status, 0, `${name}: ${stderr}`)
    const store = await open(path)
    assert((await store.bounds('log')).next > Number(stdout), name)
    assert(Number(stdout) > 0)
    await store.close()
  }
})

test('an exception that nobody catches ends the process as usual', t => {
  const path = join(folder(t), 'store')
  const thrown = run(OPEN + "await store.append('log', 'a'); for await (const event of store.tail('log')) throw new Error('in the loop')", path)
  assert.equal(thrown.status, 1)
  assert.match(thrown.stderr, /in the loop/)
  const rejected = run(OPEN + "store.append(7, 'a'); await store.append('log', 'b')", path)
  assert.equal(rejected.status, 1)
  assert.match(rejected.stderr, /a key is a string or a Uint8Array, not a number/)
})

test('Ctrl-C ends a process that waits', async t => {
  const path = join(folder(t), 'store')
  const child = spawn(process.execPath, ['--input-type=module', '-e', OPEN + "await store.append('log', 'a'); console.log('ready'); await store.tail('log', { start: 1 }).next()", path], { cwd: here })
  await once(child.stdout, 'data')
  child.kill('SIGINT')
  assert.deepEqual(await once(child, 'exit'), [null, 'SIGINT'])
  const store = await open(path)
  assert.equal((await store.bounds('log')).next, 1)
  await store.close()
})

test('worker threads have stores of their own, and release them when they end', async t => {
  const dir = folder(t)
  const program = `
    const { parentPort, workerData } = require('node:worker_threads')
    const { open } = require('brooklet')
    open(workerData).then(async store => {
      const appends = Array.from({ length: 1000 }, (_, n) => store.append('log', String(n)))
      parentPort.postMessage(await appends[0])
      for (;;) { await store.append('more', 'x') }
    })`
  const workers = [0, 1, 2].map(n => new Worker(program.replaceAll("require('brooklet')", `require(${JSON.stringify(fileURLToPath(import.meta.resolve ? import.meta.resolve('brooklet').replace('index.mjs', 'index.js') : new URL('../node_modules/brooklet/lib/index.js', import.meta.url)))})`), { eval: true, workerData: join(dir, `store-${n}`) }))
  await Promise.all(workers.map(worker => once(worker, 'message')))
  await Promise.all(workers.map(worker => worker.terminate())) // with appends in flight
  for (const n of [0, 1, 2]) {
    const store = await open(join(dir, `store-${n}`))
    assert.equal((await store.bounds('log')).next, 1000)
    await store.close()
  }
})

test('a writer is killed several times: each acknowledged entry is found', async t => {
  const dir = folder(t)
  const [path, acknowledged] = [join(dir, 'store'), join(dir, 'acknowledged')]
  let checked = 0
  for (let round = 0; round < 4; round++) {
    const out = openSync(acknowledged, 'a')
    const writer = spawn(process.execPath, [join(here, 'kill-writer.mjs'), path], { stdio: ['ignore', out, 'inherit'] })
    closeSync(out)
    const size = readFileSync(acknowledged).length
    // It is killed in mid-flight: after some acknowledgements, at a time of no meaning.
    while (readFileSync(acknowledged).length < size + 20_000) {
      assert.equal(writer.exitCode, null)
      await sleep(10 + round * 3)
    }
    writer.kill('SIGKILL')
    await once(writer, 'exit')
    const written = readFileSync(acknowledged, 'utf8')
    const whole = written.slice(0, written.lastIndexOf('\n') + 1) // A line without its end was cut by the kill.
    truncateSync(acknowledged, whole.length)
    const lines = whole.split('\n').slice(0, -1)
    assert(lines.length > checked)
    checked = lines.length
    const store = await open(path)
    const logs = new Map()
    for await (const { key } of store.scan()) logs.set(key.toString(), (await all(store.read(key))).map(entry => entry.payload.toString()))
    for (const line of lines) {
      const [key, seq, task, write] = line.split(' ')
      assert.equal(logs.get(key)?.[seq], payload(task, write), line)
    }
    await store.close()
  }
})
