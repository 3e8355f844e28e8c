// Buffers and JSON outside and inside the engine's own heap, and zlib.
const crypto = require('crypto');
const zlib = require('zlib');
let seed = 9;
const draw = (limit) => (seed = (Math.imul(seed, 1103515245) + 12345) & 0x7fffffff) % limit;
const hash = crypto.createHash('sha256');
let kept = [];
for (let i = 0; i < 60000; i++) {
  const buffer = Buffer.allocUnsafeSlow(64 + draw(8000)).fill(i & 255);
  if (i % 16 === 0) kept.push(buffer);
  if (kept.length > 2000) hash.update(kept.splice(draw(kept.length), 1)[0]);
}
const records = Array.from({ length: 30000 }, (_, i) => ({ id: i, name: `name ${draw(9999)}`, list: [draw(9), draw(99)] }));
const text = JSON.stringify(records);
for (let i = 0; i < 4; i++) hash.update(zlib.inflateSync(zlib.deflateSync(Buffer.from(text), { level: 1 })));
console.log(`records ${JSON.parse(text).length} kept ${kept.length} ${hash.digest('hex')}`);
