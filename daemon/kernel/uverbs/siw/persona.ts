/** The persona of siw, the kernel's software iWARP device. */
import { Access } from '#contract/verbs/enums';
import { gidText, primaryAddress } from '#daemon/host/host-addresses';
import { setUint64 } from '#daemon/kernel/struct-fields';
import { UverbsCommandNumber as N, QueryDevice } from '../layouts.ts';
import type { Persona } from '../persona.ts';
import { CreatedCQ, CreatedQP, CreatedSRQ } from './layouts.ts';

/** Supported page sizes, as a mask. */
const PAGE_SIZE_CAP = 4096;

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
  namesInterface: false,
  gids(device, host) {
    const { address, interfaceName } = primaryAddress(device, host);
    return [{ gid: gidText(address), type: 'IB/RoCE v1', interfaceName }];
  },
  sysfsFiles: () => ({}),
  putDevice(reply, { fwVer }) {
    setUint64(reply, QueryDevice.response.fwVer, firmwareNumber(fwVer));
    setUint64(reply, QueryDevice.response.pageSizeCap, PAGE_SIZE_CAP);
  },
  putPort: () => undefined,
  idleDoorbell: 'ENOTCONN',
  // The provider treats this key as an error value.
  privateBytes: {
    [N.getContext]: { request: 0, response: 8 },
    [N.regMR]: { request: 8, response: 8 },
    [N.createCQ]: { request: 0, response: CreatedCQ.bytes },
    [N.createQP]: { request: 0, response: CreatedQP.bytes },
    [N.createSRQ]: { request: 0, response: CreatedSRQ.bytes },
  },
  putContext: (own, deviceIndex) => own.setUint32(0, deviceIndex, true),
  keptAccess: Access.localWrite | Access.remoteWrite | Access.remoteRead,
  regionKey: (own) => own.getUint8(0),
  remoteKey: ({ rkey }) => rkey,
  boundRegion: 'EBUSY',
  putRegion: (own, stag) => own.setUint32(0, stag, true),
};

/** The version `major.minor.patch` in the encoding of siw's provider. */
function firmwareNumber(version: string): number {
  const [major = 0, minor = 0, patch = 0] = version.split('.').map(Number);
  return major * 2 ** 32 + minor * 2 ** 16 + patch;
}
