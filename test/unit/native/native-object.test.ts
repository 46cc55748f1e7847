import { describe, expect, it } from 'vitest';
import { isVerbsError } from '#contract/verbs/errors';
import { callFailure, codeOf, NativeError, unsupported } from '#native-bridge/rdma/errors';
import { NativeObject } from '#native-bridge/rdma/native-object';
import { fromSockaddr, toSockaddr } from '#native-bridge/rdma/socket-address';
import { copyOut, pointerAt, StructBlock } from '#native-bridge/rdma/struct-block';

const destroyed: string[] = [];

class Sample extends NativeObject {
  readonly name: string;
  readonly refusal: NativeError | undefined;

  constructor(name: string, parents: readonly NativeObject[] = [], refusal?: NativeError) {
    super(name, 1, parents);
    this.name = name;
    this.refusal = refusal;
  }

  takeAlong(): void {
    this.disposeChildren();
    this.dispose();
  }

  protected override destroy(): void {
    destroyed.push(this.name);
    if (this.refusal !== undefined) throw this.refusal;
  }
}

describe('objects of the library', () => {
  it('are destroyed once, and do not expose their pointer afterwards', () => {
    destroyed.length = 0;
    const object = new Sample('one');
    expect(object.pointer).toBe(1);
    object.dispose();
    object.dispose();
    expect(destroyed).toEqual(['one']);
    expect(() => object.pointer).toThrow(
      expect.objectContaining({ code: 'EINVAL', kind: 'closed' }),
    );
  });

  it('are not destroyed while another depends on them', () => {
    destroyed.length = 0;
    const parent = new Sample('parent');
    const child = new Sample('child', [parent]);
    expect(() => parent.dispose()).toThrow(
      expect.objectContaining({ code: 'EBUSY', kind: 'inUse' }),
    );
    expect(destroyed).toEqual([]);
    child.dispose();
    parent.dispose();
    expect(destroyed).toEqual(['child', 'parent']);
  });

  it('destroy their dependants first, newest first, whatever the library returns', () => {
    destroyed.length = 0;
    const root = new Sample('root');
    const domain = new Sample('domain', [root]);
    const queue = new Sample('queue', [root]);
    new Sample('pair', [domain, queue], new NativeError('refused', 'EIO', 'no'));
    root.takeAlong();
    expect(destroyed.at(-1)).toBe('root');
    expect(destroyed.indexOf('pair')).toBeLessThan(destroyed.indexOf('domain'));
    expect(destroyed.indexOf('pair')).toBeLessThan(destroyed.indexOf('queue'));
    expect(destroyed).toHaveLength(4);
  });

  it('are lost when the library refuses to destroy them: they may be half destroyed', () => {
    const object = new Sample('half', [], new NativeError('refused', 'EINVAL', 'no'));
    expect(() => object.dispose()).toThrow('no');
    expect(object.disposed).toBe(true);
    object.dispose();
  });
});

describe('errors', () => {
  it('are those of the contract, with a cause', () => {
    const error = callFailure('ibv_open_device', 'siw0', 13);
    expect(isVerbsError(error)).toBe(true);
    expect(error).toMatchObject({ code: 'EACCES', kind: 'noPermission' });
    expect(error.message).toBe('ibv_open_device on siw0: EACCES');
    expect(unsupported('siw0', 'atomics').message).toBe('siw0 has no atomics');
  });

  it.each([
    [-12, 'ENOMEM'],
    [95, 'EOPNOTSUPP'],
    [6, 'ENODEV'],
    [100, 'ENETUNREACH'],
    [32, 'ECONNRESET'],
    [4095, 'EIO'],
  ])('errno %i is %s', (errno, code) => {
    expect(codeOf(errno)).toBe(code);
  });
});

describe('socket addresses', () => {
  it.each([
    { address: '127.0.0.1', port: 7174 },
    { address: '0.0.0.0', port: 0 },
    { address: '::1', port: 65_535 },
    { address: 'fe80::1:2', port: 1 },
  ])('convert to C and back: $address', (address) => {
    expect(fromSockaddr(toSockaddr(address).bytes)).toEqual(address);
  });

  it('are undefined if unset', () => {
    expect(fromSockaddr(new Uint8Array(128))).toBeUndefined();
  });

  it.each([
    { address: 'somewhere', port: 1 },
    { address: '1.2.3', port: 1 },
    { address: '127.0.0.1', port: 65_536 },
    { address: '127.0.0.1', port: -1 },
  ])('are EINVAL for $address, $port', (address) => {
    expect(() => toSockaddr(address)).toThrow(expect.objectContaining({ code: 'EINVAL' }));
  });
});

describe('structs', () => {
  it('keep their fields apart', () => {
    const block = new StructBlock('ibv_qp_init_attr')
      .set('send_cq', 0x7fff_1234_5678)
      .set('cap.max_send_wr', 5)
      .set('qp_type', 2);
    expect(block.get('send_cq')).toBe(0x7fff_1234_5678);
    expect(block.get('cap.max_send_wr')).toBe(5);
    expect(block.get('cap.max_recv_wr')).toBe(0);
    expect(pointerAt(block.address + 8)).toBe(0x7fff_1234_5678);
    expect(new StructBlock('ibv_qp_init_attr').load(block.address).get('qp_type')).toBe(2);
    expect(copyOut(block.address + 32, 1)).toEqual(Uint8Array.of(5));
  });

  it('preserve negative numbers and texts', () => {
    expect(new StructBlock('rdma_cm_event').set('status', -111).getSigned('status')).toBe(-111);
    const device = new StructBlock('ibv_device');
    device.getBytes('name').set(Buffer.from('siw0\0rest'));
    expect(device.getText('name')).toBe('siw0');
  });
});
