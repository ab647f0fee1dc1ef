// Builds the native part, and puts it beside the part in JavaScript.
//
//   node build.mjs [--release]
import { execFileSync } from 'node:child_process'
import { copyFileSync, renameSync } from 'node:fs'

const release = process.argv.includes('--release')
const here = new URL('.', import.meta.url)
const cargo = (args, stdout) => execFileSync('cargo', args, { cwd: here, stdio: ['inherit', stdout, 'inherit'], maxBuffer: 1 << 28 })

cargo(['build', '--locked', '--quiet', '--package', 'brooklet-node', ...(release ? ['--release'] : [])], 'inherit')
const { target_directory: target } = JSON.parse(cargo(['metadata', '--locked', '--no-deps', '--format-version', '1'], 'pipe'))
const library = `libbrooklet_node.${process.platform === 'darwin' ? 'dylib' : 'so'}`
// A process may have the former file loaded: it keeps it.
copyFileSync(`${target}/${release ? 'release' : 'debug'}/${library}`, new URL('lib/brooklet.node.new', here))
renameSync(new URL('lib/brooklet.node.new', here), new URL('lib/brooklet.node', here))
