import { describe, expect, it } from 'vitest';
import { openNativeDevices } from '#daemon/native/discovery';

/** Discovery without rdma-core, and its log lines. */
async function withoutLibraries(selected: Parameters<typeof openNativeDevices>[0]['selected']) {
  const notes: string[] = [];
  const host = await openNativeDevices({
    selected,
    takenNames: [],
    takenAddresses: [],
    libraries: { verbs: 'libnothing-of-this-name.so.1' },
    note: (level, _device, text) => notes.push(`${level} ${text}`),
  });
  return { host, notes };
}

describe('a daemon on a machine without rdma-core', () => {
  it('has no native devices, and logs one line at debug level', async () => {
    const { host, notes } = await withoutLibraries([]);
    expect(host).toBeUndefined();
    expect(notes).toEqual([
      expect.stringMatching(/^debug no native devices: .*libnothing-of-this-name/),
    ]);
  });

  it('refuses to start when a native device was requested', async () => {
    const selected = [{ name: 'a', native: 'siw0', addresses: [] }];
    await expect(withoutLibraries(selected)).rejects.toMatchObject({
      code: 'ENODEV',
      message: expect.stringMatching(/libnothing-of-this-name.*iwarpd doctor/),
    });
  });
});
