// An unmodified viewer library against an edge: the Bot of node-metaverse logs in, sees 200 states move, moves one, chats and logs out.
//
// RELAY names the program to test; the default is bin/relay of this repository.
const { spawn, execFileSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const assert = require('node:assert/strict');
const path = require('node:path');
const dgram = require('node:dgram');
const tcp = require('node:net');
const { Bot, BotOptionFlags, LoginParameters, Vector3 } = require('@caspertech/node-metaverse');
const { Game } = require('./game.js');

const program = process.env.RELAY || path.join(__dirname, '../../../../../bin/relay');
const states = 200;
const patience = 60_000; // no step takes so long; it only ends a test that would wait for ever

// until waits for something that becomes true.
function until(what, reached) {
  const start = Date.now();
  return new Promise((resolve, reject) => {
    (function look() {
      const v = reached();
      if (v) return resolve(v);
      if (Date.now() - start > patience) return reject(new Error(`it did not happen: ${what}`));
      setTimeout(look, 20);
    })();
  });
}

function freeTCP() {
  return new Promise((resolve) => {
    const s = tcp.createServer().listen(0, '127.0.0.1', () => {
      const { port } = s.address();
      s.close(() => resolve(port));
    });
  });
}

function freeUDP() {
  return new Promise((resolve) => {
    const s = dgram.createSocket('udp4').bind(0, '127.0.0.1', () => {
      const { port } = s.address();
      s.close(() => resolve(port));
    });
  });
}

const programs = [];
process.on('exit', () => programs.forEach((p) => p.kill('SIGKILL')));

// tool runs dnpctl and returns what it prints.
function tool(...args) {
  return execFileSync(path.join(path.dirname(program), 'dnpctl'), args).toString().trim();
}

// relay starts everything in one process.
async function relay(...more) {
  const [nats, web, udp, viewers, http] = [await freeTCP(), await freeTCP(), await freeUDP(), await freeUDP(), await freeTCP()];
  const child = spawn(program, ['dev', '--no-demo', `--nats-listen=127.0.0.1:${nats}`, `--listen=udp://127.0.0.1:${udp}`,
    `--websocket=127.0.0.1:${web}`, '--webtransport=', `--lludp=127.0.0.1:${viewers}`, `--http=127.0.0.1:${http}`, '--lludp-region=Lobby',
    '--workers=1', '--drain-timeout=5s', ...more], { stdio: ['ignore', 'pipe', 'pipe'] });
  programs.push(child);
  let out = '';
  child.stdout.on('data', (b) => { out += b; });
  child.stderr.on('data', (b) => { out += b; });
  child.ended = new Promise((resolve) => child.on('exit', resolve));
  await until(`the relay starts: ${out}`, () => out.includes('dnpctl events demo') || child.exitCode !== null);
  if (child.exitCode !== null) throw new Error(out);
  return { nats: `127.0.0.1:${nats}`, login: `http://127.0.0.1:${web}/lludp/login`, child, log: () => out };
}

function newBot(login, token) {
  const p = new LoginParameters();
  Object.assign(p, { firstName: 'Ada', lastName: 'Byron', password: 'secret', start: 'last', url: login, agreeToTOS: true, readCritical: true });
  if (token) p.token = token;
  return new Bot(p, BotOptionFlags.None);
}

async function plays() {
  const edge = await relay();
  const game = new Game(edge.nats);
  const changed = [];
  const said = [];
  const players = [];
  game.subscribe('dnp.v1.event.demo', (subject, data) => {
    const e = JSON.parse(data);
    if (e.event === 'changed' || e.type === 'changed') changed.push(e);
    if (e.event === 'left' || e.type === 'left') players.push(e);
  });
  game.subscribe('dnp.v1.from.demo.>', (subject, data) => said.push({ subject, text: data.toString() }));
  const ops = [];
  for (let i = 0; i < states; i++) {
    ops.push({ op: 'put', key: `o${i}`, describe: true, access: i === 0 ? 'read-write' : 'read-only', values: [
      { name: 'pos', type: 'vector3f32', value: [i % 20, 0, Math.floor(i / 20)] }, { name: 'hp', type: 'uint8', value: i }] });
  }
  const answer = await game.ask('demo', ops);
  assert.ok(answer.seq, JSON.stringify(answer));

  const bot = newBot(edge.login);
  await bot.login();
  console.log('logged in');
  await bot.connectToSim();
  console.log('connected');
  const objects = bot.currentRegion.objects;
  await until('the bot sees all objects', () => objects.getNumberOfObjects() === states);
  const named = (key) => [...objects.objects.values()].find((o) => o.Text?.split('\n')[0] === key);
  assert.equal(named('o7').Text, 'o7\nhp=7');
  assert.deepEqual([named('o7').Position.x, named('o7').Position.y, named('o7').Position.z], [135, 128, 25]);
  assert.equal(bot.currentRegion.regionName, 'Lobby');

  const height = (k, i) => (k * 10 + i) % 50;
  for (let k = 1; k <= 20; k++) {
    await game.ask('demo', Array.from({ length: states }, (_, i) => ({ op: 'set', key: `o${i}`, values: { pos: [i % 20, height(k, i), Math.floor(i / 20)] } })));
  }
  await until('the bot sees all objects where they are', () => {
    for (let i = 0; i < states; i++) if (named(`o${i}`)?.Position.z !== 25 + height(20, i)) return false;
    return true;
  });
  console.log('all objects move');

  await named('o0').setGeometry(new Vector3([138, 118, 30]));
  await until('the game server hears of the write', () => changed.length > 0);
  assert.equal(changed[0].key, 'o0');
  assert.deepEqual(changed[0].values.pos, [10, 5, 10]);

  await bot.clientCommands.comms.say('hello');
  const message = await until('the game server gets the chat', () => said[0]);
  assert.equal(message.text, 'hello');
  const heard = [];
  bot.clientEvents.onNearbyChat.subscribe((e) => heard.push(`${e.fromName}: ${e.message}`));
  game.publish(message.subject.replace('.from.', '.to.'), 'welcome');
  await until('the bot hears the game', () => heard.includes('Lobby: welcome'));
  console.log('both chat');

  await game.ask('demo', [{ op: 'remove', key: 'o5' }]);
  await until('an object ends', () => !named('o5'));

  await bot.close();
  await until('the session ends', () => players.length > 0);
  console.log('logged out');

  const second = newBot(edge.login);
  await second.login();
  await second.connectToSim();
  await until('another bot sees all objects', () => second.currentRegion.objects.getNumberOfObjects() === states - 1);
  const gone = new Promise((resolve) => second.clientEvents.onDisconnected.subscribe((e) => resolve(e.message)));
  edge.child.kill('SIGTERM');
  assert.match(await gone, /log in again/);
  console.log('the edge says that it ends');
  await edge.child.ended;
  game.close();
}

// tokens has a deployment whose clients need tokens.
async function tokens() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'viewer-'));
  tool('token', 'keygen', '--out', path.join(folder, 'k'));
  const token = tool('token', 'issue', '--key', path.join(folder, 'k.key'), 'demo', 'ada');
  const edge = await relay('--auth=token', `--token-keys=${path.join(folder, 'k.pub')}`);
  fs.rmSync(folder, { recursive: true });
  await assert.rejects(newBot(edge.login, '').login(), /token|password/i);
  await assert.rejects(newBot(edge.login, 'ey' + 'A'.repeat(300)).login(), /token|password/i);
  const bot = newBot(edge.login, token);
  await bot.login();
  await bot.connectToSim();
  await bot.close();
  edge.child.kill('SIGTERM');
  await edge.child.ended;
  console.log('a token logs in');
}

async function main() {
  await plays();
  await tokens();
}

main().then(() => {
  console.log('passed');
  process.exit(0);
}, (e) => {
  console.error('failed:', e);
  process.exit(1);
});
