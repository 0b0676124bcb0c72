// Writes bodies of messages as node-metaverse does, in hex by name, for the tests of package viewer. The fields are those of
// body_test.go.
const lib = '@caspertech/node-metaverse/dist/lib/classes/';
const { UUID } = require(lib + 'UUID');
const { Vector3 } = require(lib + 'Vector3');
const { Quaternion } = require(lib + 'Quaternion');
const { IPAddress } = require(lib + 'IPAddress');
const { Long } = require(lib + 'LongUtil');
const text = (s) => Buffer.from(s + '\0');
const empty = Buffer.alloc(0);
const agent = new UUID('11111111-2222-3333-4444-555555555555');
const session = new UUID('aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee');
const other = new UUID('01020304-0506-0708-090a-0b0c0d0e0f10');
const none = UUID.zero();
const identity = { AgentID: agent, SessionID: session };
const handle = new Long(256000, 256000, true);
const long = new Long(0, 0, true);
const floats = (...v) => Buffer.from(new Float32Array(v).buffer);

const messages = {
  ObjectUpdate: {
    RegionData: { RegionHandle: handle, TimeDilation: 65535 },
    ObjectData: [{
      ID: 7, State: 0, FullID: other, CRC: 3, PCode: 9, Material: 3, ClickAction: 0, Scale: new Vector3([0.5, 0.5, 0.5]),
      ObjectData: Buffer.concat([floats(1, 2, 3), Buffer.alloc(24), floats(0, 0.5, 0), Buffer.alloc(12)]), ParentID: 0, UpdateFlags: 0x10c,
      PathCurve: 16, ProfileCurve: 1, PathBegin: 0, PathEnd: 0, PathScaleX: 100, PathScaleY: 100, PathShearX: 0, PathShearY: 0, PathTwist: 0,
      PathTwistBegin: 0, PathRadiusOffset: 0, PathTaperX: 0, PathTaperY: 0, PathRevolutions: 0, PathSkew: 0, ProfileBegin: 0, ProfileEnd: 0,
      ProfileHollow: 0, TextureEntry: empty, TextureAnim: empty, NameValue: empty, Data: empty, Text: text('tower\nhp=7'),
      TextColor: Buffer.alloc(4), MediaURL: empty, PSBlock: empty, ExtraParams: Buffer.from([0]), Sound: none, OwnerID: none, Gain: 0,
      Flags: 0, Radius: 0, JointType: 0, JointPivot: Vector3.getZero(), JointAxisOrAnchor: Vector3.getZero(),
    }],
  },
  KillObject: { ObjectData: [{ ID: 7 }, { ID: 65536 }] },
  RegionHandshake: {
    RegionInfo: {
      RegionFlags: 0, SimAccess: 13, SimName: text('Lobby'), SimOwner: none, IsEstateManager: false, WaterHeight: 20, BillableFactor: 1, CacheID: none,
      TerrainBase0: none, TerrainBase1: none, TerrainBase2: none, TerrainBase3: none, TerrainDetail0: none, TerrainDetail1: none,
      TerrainDetail2: none, TerrainDetail3: none, TerrainStartHeight00: 0, TerrainStartHeight01: 0, TerrainStartHeight10: 0,
      TerrainStartHeight11: 0, TerrainHeightRange00: 0, TerrainHeightRange01: 0, TerrainHeightRange10: 0, TerrainHeightRange11: 0,
    },
    RegionInfo2: { RegionID: none }, // the test puts the id of the region there
    RegionInfo3: { CPUClassID: 0, CPURatio: 0, ColoName: text(''), ProductSKU: text(''), ProductName: text('dnprelay') },
    RegionInfo4: [{ RegionFlagsExtended: long, RegionProtocols: long }],
  },
  RegionInfo: {
    AgentData: identity,
    RegionInfo: {
      SimName: text('Lobby'), EstateID: 1, ParentEstateID: 1, RegionFlags: 0, SimAccess: 13, MaxAgents: 100, BillableFactor: 1, ObjectBonusFactor: 1,
      WaterHeight: 20, TerrainRaiseLimit: 0, TerrainLowerLimit: 0, PricePerMeter: 0, RedirectGridX: 0, RedirectGridY: 0, UseEstateSun: false, SunHour: 0,
    },
    RegionInfo2: { ProductSKU: text(''), ProductName: text('dnprelay'), MaxAgents32: 100, HardMaxAgents: 100, HardMaxObjects: 15000 },
    RegionInfo3: [], RegionInfo5: [],
  },
  MapBlockReply: {
    AgentData: { AgentID: agent, Flags: 2 },
    Data: [{ X: 1000, Y: 1000, Name: text('Lobby'), Access: 13, RegionFlags: 0, WaterHeight: 20, Agents: 0, MapImageID: none }],
  },
  AgentMovementComplete: {
    AgentData: identity,
    Data: { Position: new Vector3([128, 128, 25]), LookAt: new Vector3([1, 0, 0]), RegionHandle: handle, Timestamp: 1000 },
    SimData: { ChannelVersion: text('dnprelay') },
  },
  AgentWearablesUpdate: { AgentData: { ...identity, SerialNum: 1 }, WearableData: [] },
  AgentDataUpdate: {
    AgentData: {
      AgentID: agent, FirstName: text('Ada'), LastName: text('Byron'), GroupTitle: text(''), ActiveGroupID: none, GroupPowers: long, GroupName: text(''),
    },
  },
  UUIDNameReply: { UUIDNameBlock: [{ ID: agent, FirstName: text('Ada'), LastName: text('Byron') }, { ID: other, FirstName: text('?'), LastName: text('') }] },
  CoarseLocationUpdate: {
    Location: [{ X: 1, Y: 2, Z: 3 }, { X: 255, Y: 0, Z: 255 }], Index: { You: -1, Prey: -1 }, AgentData: [{ AgentID: agent }, { AgentID: other }],
  },
  ChatFromSimulator: {
    ChatData: {
      FromName: text('Lobby'), SourceID: none, OwnerID: none, SourceType: 2, ChatType: 1, Audible: 1, Position: new Vector3([128, 128, 25]), Message: text('hällo'),
    },
  },
  GenericMessage: {
    AgentData: { ...identity, TransactionID: none }, MethodData: { Method: text('dnp.gone'), Invoice: none },
    ParamList: [{ Parameter: Buffer.from('7') }, { Parameter: Buffer.from([0, 255]) }],
  },
  LogoutReply: { AgentData: identity, InventoryData: [{ ItemID: none }] },
  KickUser: { TargetBlock: { TargetIP: new IPAddress('0.0.0.0'), TargetPort: 0 }, UserInfo: { ...identity, Reason: text('bye') } },

  CompleteAgentMovement: { AgentData: { ...identity, CircuitCode: 4711 } },
  AgentThrottle: { AgentData: { ...identity, CircuitCode: 4711 }, Throttle: { GenCounter: 2, Throttles: floats(1, 2, 3, 4, 5, 6, 7000) } },
  MultipleObjectUpdate: {
    AgentData: identity,
    ObjectData: [
      { ObjectLocalID: 7, Type: 1, Data: new Vector3([1, 2, 3]).getBuffer() },
      { ObjectLocalID: 8, Type: 2, Data: new Quaternion([0, 0, 0.6, 0.8]).getBuffer() },
      { ObjectLocalID: 9, Type: 5, Data: floats(4, 5, 6, 1, 1, 1) },
    ],
  },
  RequestMultipleObjects: { AgentData: identity, ObjectData: [{ CacheMissType: 0, ID: 7 }, { CacheMissType: 1, ID: 65536 }] },
  ChatFromViewer: { AgentData: identity, ChatData: { Message: text('hällo'), Type: 1, Channel: 0 } },
  MapNameRequest: { AgentData: { ...identity, Flags: 2, EstateID: 0, Godlike: false }, NameData: { Name: text('Lobby') } },
  UUIDNameRequest: { UUIDNameBlock: [{ ID: agent }, { ID: other }] },
  AgentUpdate: {
    AgentData: {
      ...identity, BodyRotation: new Quaternion([0, 0, 0.6, 0.8]), HeadRotation: new Quaternion([0, 0, 0, 1]), State: 0, CameraCenter: new Vector3([1, 2, 3]),
      CameraAtAxis: new Vector3([1, 0, 0]), CameraLeftAxis: new Vector3([0, 1, 0]), CameraUpAxis: new Vector3([0, 0, 1]), Far: 64, ControlFlags: 5, Flags: 0,
    },
  },
};

const bodies = {};
for (const [name, fields] of Object.entries(messages)) {
  const m = Object.assign(new (require(lib + 'messages/' + name)[name + 'Message'])(), fields);
  const b = Buffer.alloc(4096);
  bodies[name] = b.subarray(0, m.writeToBuffer(b, 0)).toString('hex');
}
console.log(JSON.stringify(bodies, null, 1));
