// A strict project: `tests/run` compiles this.
import { BrookletError, Commit, type Entry, type Info, open, type Store, type TailEvent } from 'brooklet'
import { BrookletPersistence } from 'brooklet/yjs'

async function main(): Promise<void> {
  const store: Store = await open('store', { create: 'ifMissing', linger: 1 })
  const seq: number = await store.append('log', Uint8Array.of(1))
  const seqs: number[] = await store.appendMany(Buffer.from('log'), ['a', Buffer.alloc(1)])
  const commit: Commit = new Commit().append('log', 'a').expectNext('log', seq).defer(10).durable()
  seqs.push(...await store.commit(commit))
  for await (const entry of store.read('log', { start: 1, reverse: true })) {
    const found: Entry = entry
    found.payload.readUInt8(0)
  }
  const aborts = new AbortController()
  const tail: AsyncIterable<TailEvent> = store.tail('log', { signal: aborts.signal })
  for await (const event of tail) {
    switch (event.type) {
      case 'entry': event.payload.toString(); break
      case 'trimmed': event.end.toFixed(); break
      case 'truncated': event.next.toFixed(); break
      case 'deleted': break
      default: event satisfies never
    }
  }
  await store.waitFor('log', seq + 1, { signal: AbortSignal.timeout(1000) })
  const { runs, stopped }: Info = await store.info()
  if (!stopped) runs.toFixed()
  const last: Entry | null = await store.last('log')
  // @ts-expect-error: it may be null.
  last.seq
  // @ts-expect-error: a payload is bytes or a string.
  await store.append('log', 7)
  // @ts-expect-error: there is no such option.
  await open('store', { readonly: true })
  try {
    await store.flush()
  } catch (error) {
    if (error instanceof BrookletError && error.code === 'BROOKLET_CONFLICT') error.next?.toFixed()
  }
  const persistence = new BrookletPersistence(store)
  ;(await persistence.getYDoc('doc')).getText('text').insert(0, 'a')
  await using another = await open('other')
  await another.flush()
  await store.close()
}

void main()
