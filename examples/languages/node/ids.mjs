// Async tasks that share one source of IDs.
//
//   COSID_SOCKET=... node examples/languages/node/ids.mjs orders 4 1000
//
// prints 1000 IDs of each of 4 tasks.

import { CosId } from './cosid.mjs';

const [generator, tasks, count] = process.argv.slice(2);
if (!count) {
  console.error('usage: ids.mjs GENERATOR TASKS COUNT');
  process.exit(64);
}

async function make(ids) {
  const made = [];
  for (let i = 0; i < Number(count); i++) made.push(await ids.next());
  return made;
}

try {
  const ids = new CosId(generator);
  const made = await Promise.all(Array.from({ length: Number(tasks) }, () => make(ids)));
  process.stdout.write(made.flat().map((id) => `${id}\n`).join(''));
} catch (error) {
  console.error(`no ID: ${error.message}`);
  process.exitCode = 1;
}
