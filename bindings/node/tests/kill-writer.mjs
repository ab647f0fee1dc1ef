// Appends by several tasks, and prints each entry once it is acknowledged, until it is killed.
import { writeSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { Commit, open } from 'brooklet'

const TASKS = 12
const LOGS = 50

export const payload = (task, write) => `task ${task}, write ${write}, and some more`

async function write (store, task) {
  for (let write = 0; ; write++) {
    const key = `log/${(write * TASKS + task) % LOGS}`
    const entry = payload(task, write)
    const [seq] = task % 3 === 0
      ? await store.commit(new Commit().append(key, entry))
      : task % 3 === 1 ? await store.appendMany(key, [entry]) : [await store.append(key, entry)]
    // One call a line: a kill may cut the last one.
    writeSync(1, `${key} ${seq} ${task} ${write}\n`)
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const store = await open(process.argv[2])
  await Promise.all(Array.from({ length: TASKS }, (_, task) => write(store, task)))
}
