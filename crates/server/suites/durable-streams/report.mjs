// Tells what was skipped, and why; fails where `skipped` gives no reason. Each line of that: how the names of tests begin,
// a tab, and the reason.
import { readFileSync } from "node:fs"

const [report, reasons] = process.argv.slice(2)
const tests = JSON.parse(readFileSync(report, "utf8")).testResults.flatMap((file) => file.assertionResults)
const known = readFileSync(reasons, "utf8")
  .split("\n")
  .filter((line) => line && !line.startsWith("#"))
  .map((line) => line.split("\t"))
const passed = tests.filter((test) => test.status === "passed").length
const failed = tests.filter((test) => test.status === "failed")
const skipped = tests.filter((test) => test.status !== "passed" && test.status !== "failed")
const reasonOf = (test) => known.find(([begin]) => test.fullName.trim().startsWith(begin))?.[1]

for (const test of skipped) console.log(`skipped: ${test.fullName.trim()}: ${reasonOf(test) ?? "NO REASON"}`)
for (const test of failed) console.log(`FAILED: ${test.fullName.trim()}`)
console.log(`${passed} passed, ${failed.length} failed, ${skipped.length} skipped`)
const chosen = process.env.VITEST_ARGS !== ""
process.exit(failed.length > 0 || passed === 0 || (!chosen && skipped.some((test) => !reasonOf(test))) ? 1 : 0)
