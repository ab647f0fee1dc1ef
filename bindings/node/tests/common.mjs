import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { open } from 'brooklet'

/** A folder that is removed when the test ends. */
export function folder (test) {
  const dir = mkdtempSync(join(tmpdir(), 'brooklet-'))
  test.after(() => rmSync(dir, { recursive: true, force: true }))
  return dir
}

/** A new store that is closed when the test ends. */
export async function opened (test, options) {
  const dir = mkdtempSync(join(tmpdir(), 'brooklet-'))
  const path = join(dir, 'store.brooklet')
  const store = await open(path, options)
  test.after(async () => {
    await store.close()
    rmSync(dir, { recursive: true, force: true })
  })
  return { path, store }
}

export async function all (items) {
  const found = []
  for await (const item of items) found.push(item)
  return found
}

export const plain = entries => entries.map(({ seq, payload }) => [seq, payload.toString()])
