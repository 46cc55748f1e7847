/** The persona of siw, the kernel's software iWARP device. */
import { setUint64 } from '../../struct-fields.ts';
import { UverbsCommandNumber as N } from '../layouts.ts';
import type { Persona } from '../persona.ts';

/** See the module's comment. */
export const SIW: Persona = {
  // RDMA_DRIVER_SIW
  driverId: 18,
  abiVersion: 1,
  // RDMA_NODE_RNIC, which makes the transport iWARP
  nodeType: { number: 4, name: '4: RNIC' },
  protocol: 'iw',
  description: 'Emulated iWARP RNIC',
  // IB_DEVICE_MEM_MGT_EXTENSIONS
  deviceCapFlags: 0x20_0000,
  // IB_PORT_CM_SUP and IB_PORT_DEVICE_MGMT_SUP
  portCapFlags: 0x0009_0000,
  // The provider treats this key as an error value.
  reservedRingKey: 0x9_0000,
  privateBytes: {
    [N.getContext]: { request: 0, response: 8 },
    [N.regMR]: { request: 8, response: 8 },
    [N.createCQ]: { request: 0, response: 16 },
    [N.createQP]: { request: 0, response: 32 },
    [N.createSRQ]: { request: 0, response: 16 },
  },
  regionKey: (request) => request.getUint8(0),
  putContext: (reply, deviceIndex) => reply.setUint32(0, deviceIndex, true),
  putRegion: (reply, stag) => reply.setUint32(0, stag, true),
  putCQ(reply, { handle, entries, key }) {
    reply.setUint32(0, handle, true);
    reply.setUint32(4, entries, true);
    setUint64(reply, 8, key);
  },
  putSRQ(reply, { entries, key }) {
    reply.setUint32(0, entries, true);
    setUint64(reply, 8, key);
  },
  putQP(reply, { qpn, sendEntries, receiveEntries, sendKey, receiveKey }) {
    reply.setUint32(0, qpn, true);
    reply.setUint32(4, sendEntries, true);
    reply.setUint32(8, receiveEntries, true);
    setUint64(reply, 16, sendKey);
    setUint64(reply, 24, receiveKey);
  },
};
