/** The configuration space of a PCI function, as `config` of sysfs has it for root. */
import type { AdapterIdentity } from '#daemon/host/adapter-identity';

const CONFIG_BYTES = 256;

/** Offsets of the header, and of the only capability, after it. */
const At = {
  vendor: 0x00,
  device: 0x02,
  command: 0x04,
  status: 0x06,
  class: 0x0b,
  subsystemVendor: 0x2c,
  subsystemDevice: 0x2e,
  capabilities: 0x34,
  express: 0x40,
  expressFlags: 0x42,
  linkCapabilities: 0x4c,
  linkStatus: 0x52,
} as const;

/** Memory and bus master are on; there is a list of capabilities. */
const COMMAND = 0x6;
const STATUS = 0x10;
const NETWORK_CLASS = 2;
const EXPRESS_CAPABILITY = 0x10;
/** Version 2, an endpoint. */
const EXPRESS_FLAGS = 2;
/** 16 lanes of 32 GT/s. */
const LINK = (16 << 4) | 5;

/** The bytes of a function with this identity. It has no memory, interrupts or ROM. */
export function pciConfig({ pci }: AdapterIdentity): Uint8Array {
  const bytes = new Uint8Array(CONFIG_BYTES);
  const view = new DataView(bytes.buffer);
  for (const [offset, value] of [
    [At.vendor, pci.vendor],
    [At.device, pci.device],
    [At.command, COMMAND],
    [At.status, STATUS],
    [At.subsystemVendor, pci.subsystemVendor],
    [At.subsystemDevice, pci.subsystemDevice],
    [At.capabilities, At.express],
    [At.express, EXPRESS_CAPABILITY],
    [At.expressFlags, EXPRESS_FLAGS],
    [At.linkCapabilities, LINK],
    [At.linkStatus, LINK],
  ] as const) {
    view.setUint16(offset, value, true);
  }
  view.setUint8(At.class, NETWORK_CLASS);
  return bytes;
}
