// Reads a change stream of the emulator that BIGTABLE_EMULATOR_HOST names with
// the generated client of Google's Node library, through a split and a merge
// that BIGTABLE_EMULATOR_CONTROL makes, and resumes by token.
import assert from 'node:assert/strict';
import {Bigtable, v2} from '@google-cloud/bigtable';
import {credentials} from '@grpc/grpc-js';

const project = 'conformance';
const name = `projects/${project}/instances/node/tables/streams`;
const [servicePath, port] = process.env.BIGTABLE_EMULATOR_HOST.split(':');
const options = {servicePath, port: Number(port), sslCreds: credentials.createInsecure(), projectId: project};
const data = new v2.BigtableClient(options);
const admin = new v2.BigtableTableAdminClient(options);
const table = new Bigtable({projectId: project}).instance('node').table('streams');

await admin.createTable({
  parent: `projects/${project}/instances/node`,
  tableId: 'streams',
  table: {columnFamilies: {cf: {}}, changeStreamConfig: {retentionPeriod: {seconds: 86400}}},
});
// Start times are inclusive, and not before the stream was turned on, which it
// is now.
const now = Date.now();
const startTime = {seconds: Math.floor(now / 1000), nanos: (now % 1000) * 1e6 + 999999};

const put = (key, value) => table.insert([{key, data: {cf: {q: value}}}]);

async function tablets(change, key) {
  const res = await fetch(`${process.env.BIGTABLE_EMULATOR_CONTROL}/v1/tablets/${change}`, {
    method: 'POST',
    headers: {'Content-Type': 'application/json'},
    body: JSON.stringify({table: name, key: Buffer.from(key).toString('base64')}),
  });
  assert.equal(res.status, 204, await res.text());
}

const range = p => [p.rowRange.startKeyClosed.toString(), p.rowRange.endKeyOpen.toString()];

const partitions = () =>
  new Promise((resolve, reject) => {
    const out = [];
    data
      .generateInitialChangeStreamPartitions({tableName: name})
      .on('data', res => out.push(res.partition))
      .on('error', reject)
      .on('end', () => resolve(out));
  });

// open reads a partition. next() is its next record or close.
function open(partition, from) {
  const stream = data.readChangeStream({tableName: name, partition, ...from});
  const messages = stream[Symbol.asyncIterator]();
  return {
    async next() {
      for (;;) {
        const {value, done} = await messages.next();
        if (done) return undefined;
        if (!value.heartbeat) return value;
      }
    },
    // record is key, value and the token behind it.
    async record() {
      const {dataChange: c} = await this.next();
      assert.equal(c.type, 'USER');
      assert.ok(c.done && c.sourceClusterId && c.commitTimestamp && c.estimatedLowWatermark);
      return {text: `${c.rowKey}=${c.chunks[0].mutation.setCell.value}`, token: {partition, token: c.token}};
    },
    // close is the close, behind which the stream ends.
    async close() {
      const {closeStream} = await this.next();
      assert.equal(await this.next(), undefined);
      return closeStream;
    },
    stop() {
      stream.on('error', () => {}); // it is cancelled
      stream.cancel();
    },
  };
}
const tokens = (...list) => ({continuationTokens: {tokens: list}});

const [whole, ...others] = await partitions();
assert.deepEqual([range(whole), others], [['', ''], []]);

await put('a', '1');
await put('x', '2');
const parent = open(whole, {startTime});
const first = await parent.record();
assert.equal(first.text, 'a=1');
assert.equal((await parent.record()).text, 'x=2');

await tablets('split', 'm');
await put('a', '3');
await put('x', '4');
const split = await parent.close();
assert.equal(split.status.code, 11);
assert.deepEqual(split.newPartitions.map(range), [['', 'm'], ['m', '']]);
assert.deepEqual(split.continuationTokens.map(t => range(t.partition)), [['', 'm'], ['m', '']]);
assert.deepEqual((await partitions()).map(range), [['', 'm'], ['m', '']]);

const children = split.newPartitions.map((p, i) => open(p, tokens(split.continuationTokens[i])));
const left = await children[0].record();
assert.deepEqual([left.text, (await children[1].record()).text], ['a=3', 'x=4']);
children[0].stop();
await put('a', '5');

// The left one has not read a=5 when the two merge.
await tablets('merge', 'm');
const merge = await children[1].close();
assert.deepEqual([merge.newPartitions.map(range), merge.continuationTokens.map(t => range(t.partition))], [[['', '']], [['m', '']]]);
await put('x', '6');
const merged = open(whole, tokens(merge.continuationTokens[0], left.token));
const five = await merged.record();
assert.deepEqual([five.text, (await merged.record()).text], ['a=5', 'x=6']);
merged.stop();

const resumed = open(whole, tokens(five.token));
assert.equal((await resumed.record()).text, 'x=6');
resumed.stop();

// The token from before the split leads to where its changes are: here.
const again = open(whole, tokens(first.token));
assert.deepEqual([(await again.record()).text, (await again.record()).text], ['x=2', 'a=3']);
again.stop();

await assert.rejects(open(split.newPartitions[0], tokens(first.token)).next(), e => e.code === 3);
await table.delete();
await Promise.all([data.close(), admin.close()]);
console.log('node, change streams: ok');
