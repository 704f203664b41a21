// Drives the emulator that BIGTABLE_EMULATOR_HOST names with Google's Node
// client: tables, families, rows, filters, mutate, increment, instances, backups and
// authorized views.
import assert from 'node:assert/strict';
import {PreciseDate} from '@google-cloud/precise-date';
import {Bigtable, v2} from '@google-cloud/bigtable';
import {grpc} from 'google-gax';

const bigtable = new Bigtable({projectId: 'conformance'});
const instance = bigtable.instance('node');
const table = instance.table('t');

const values = (row, family, qualifier) => row.data[family][qualifier].map(c => c.value);

await table.create({
  families: ['cf', {name: 'old', rule: {versions: 1}}],
  splits: [Buffer.from('m')],
});
assert.deepEqual((await instance.getTables())[0].map(t => t.id), ['t']);

const family = table.family('extra');
await family.create({rule: {age: {seconds: 3600}, versions: 2, union: true}});
const [families] = await table.getFamilies();
assert.deepEqual(families.map(f => f.id).sort(), ['cf', 'extra', 'old']);
await family.delete();

await table.insert([
  {key: 'a', data: {cf: {q: 'one', n: {value: 1, timestamp: 1000}}}},
  {key: 'b', data: {cf: {q: {value: 'old', timestamp: 1000000}}}},
  {key: 'b', data: {cf: {q: {value: 'new', timestamp: 2000000}}}},
  {key: 'z', data: {old: {q: 'last'}}},
]);
const [rows] = await table.getRows();
assert.deepEqual(rows.map(r => r.id), ['a', 'b', 'z']);
assert.deepEqual(values(rows[1], 'cf', 'q'), ['new', 'old']);

const [latest] = await table.getRows({filter: [{column: {cellLimit: 1}}, {value: /n.*/}]});
assert.deepEqual(latest.map(r => r.id), ['b']);
const [some] = await table.getRows({ranges: [{start: 'b', end: {value: 'z', inclusive: false}}], limit: 5});
assert.deepEqual(some.map(r => r.id), ['b']);
const [keys] = await table.getRows({keys: ['z', 'a']});
assert.deepEqual(keys.map(r => r.id), ['a', 'z']);

const [samples] = await table.sampleRowKeys();
assert.deepEqual(samples.map(s => s.key.toString()), ['m', '']);

await table.mutate([
  {method: 'insert', key: 'c', data: {cf: {q: 'three'}}},
  {method: 'delete', key: 'z'},
]);
assert.deepEqual((await table.getRows())[0].map(r => r.id), ['a', 'b', 'c']);

const counter = table.row('counter');
await counter.increment('cf:n', 5);
await counter.increment('cf:n', -2);
assert.deepEqual(values((await counter.get())[0], 'cf', 'n').at(0), 3);
await counter.createRules([{column: 'cf:log', append: 'x'}, {column: 'cf:log', append: 'y'}]);
assert.deepEqual(values((await counter.get())[0], 'cf', 'log').at(0), 'xy');

const row = table.row('a');
const [matched] = await row.filter([{value: 'one'}], {
  onMatch: [{method: 'insert', data: {cf: {q: 'matched'}}}],
});
assert.equal(matched, true);
assert.equal(values((await row.get())[0], 'cf', 'q').at(0), 'matched');

await assert.rejects(table.insert([{key: 'x', data: {nope: {q: '1'}}}]), e => e.name === 'PartialFailureError' && e.errors[0].code === 5);
await assert.rejects(instance.table('nope').getRows(), e => e.code === 5);

await row.delete();
await table.deleteRows('b');
assert.deepEqual((await table.getRows())[0].map(r => r.id), ['c', 'counter']);
await table.truncate();
assert.deepEqual((await table.getRows())[0], []);
await table.delete();
assert.deepEqual((await instance.getTables())[0], []);

// An instance, a backup of a table and its restoration, and an authorized view.
const cluster = {id: 'node-c1', location: 'zone-a', nodes: 1};
const [created] = await bigtable.createInstance('node-created', {clusters: [cluster], labels: {team: 'node'}});
assert.deepEqual((await created.getClusters())[0].map(c => c.id), ['node-c1']);
const source = created.table('t');
await source.create({families: ['cf']});
await source.insert([{key: 'r1', data: {cf: {q: '1', other: '2'}}}, {key: 's1', data: {cf: {q: '3'}}}]);

const [backup, backedUp] = await created.cluster('node-c1').createBackup('b', {
  table: source,
  expireTime: new PreciseDate(Date.now() + 8 * 3600 * 1000),
});
await backedUp.promise();
await source.insert([{key: 'later', data: {cf: {q: '4'}}}]);
const [restored, restoring] = await backup.restore('restored');
await restoring.promise();
assert.deepEqual((await restored.getRows())[0].map(r => r.id), ['r1', 's1']);
await backup.delete();

const admin = new v2.BigtableTableAdminClient({
  servicePath: process.env.BIGTABLE_EMULATOR_HOST.replace(/:.*/, ''),
  port: Number(process.env.BIGTABLE_EMULATOR_HOST.replace(/.*:/, '')),
  sslCreds: grpc.credentials.createInsecure(),
  projectId: 'conformance',
});
const parent = 'projects/conformance/instances/node-created/tables/t';
const [making] = await admin.createAuthorizedView({
  parent,
  authorizedViewId: 'v',
  authorizedView: {subsetView: {rowPrefixes: [Buffer.from('r')], familySubsets: {cf: {qualifiers: [Buffer.from('q')]}}}},
});
await making.promise();
const [seen] = await created.view('t', 'v').getRows();
assert.deepEqual(seen.map(r => [r.id, Object.keys(r.data.cf)]), [['r1', ['q']]]);
await assert.rejects(created.view('t', 'v').insert([{key: 'x', data: {cf: {q: '1'}}}]), e => e.errors[0].code === 7);
await admin.deleteAuthorizedView({name: parent + '/authorizedViews/v'});
await admin.close();
await created.delete();
await assert.rejects(created.getTables(), e => e.code === 5);

await bigtable.close();
console.log('node: ok');
