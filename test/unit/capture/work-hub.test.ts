import { describe, expect, it } from 'vitest';
import { SQOpcode } from '#contract/protocol/queue-layout';
import { WorkHub, type WorkWatcher } from '#daemon/capture/work-hub';
import { NicRig } from '#test/support/nic-rig';

function watcher() {
  const notified: string[] = [];
  const user: WorkWatcher = {
    posted: (device, { wrIdLo }) => notified.push(`${device} posted ${wrIdLo}`),
    completed: (device, { wrIdLo }) => notified.push(`${device} completed ${wrIdLo}`),
  };
  return { user, notified };
}

function twoDevices() {
  const rigs = { a: new NicRig(), b: new NicRig() };
  const devices = Object.entries(rigs).map(([name, { nic }]) => ({ name, watch: nic.watch }));
  return { ...rigs, hub: new WorkHub(devices) };
}

const send = (wrId: number) => ({ opcode: SQOpcode.send, wrId, sges: [] });

describe('the hub of work', () => {
  it('notifies every watcher of every device while it watches', () => {
    const { a, b, hub } = twoDevices();
    const first = watcher();
    const second = watcher();
    const stopFirst = hub.watch(first.user);
    a.send(send(1));
    const stopSecond = hub.watch(second.user);
    b.send(send(2));
    stopFirst();
    a.send(send(3));
    stopSecond();
    a.send(send(4));
    expect(first.notified).toEqual(['a posted 1', 'a completed 1', 'b posted 2', 'b completed 2']);
    expect(second.notified).toEqual(['b posted 2', 'b completed 2', 'a posted 3', 'a completed 3']);
  });

  it('leaves devices alone without a watcher', () => {
    const { a, hub } = twoDevices();
    expect(a.nic.watch.observer).toBeUndefined();
    const stop = hub.watch(watcher().user);
    expect(a.nic.watch.observer).toBeDefined();
    stop();
    stop();
    expect(a.nic.watch.observer).toBeUndefined();
  });

  it('survives a watcher that leaves while it is notified', () => {
    const { a, hub } = twoDevices();
    const notified: string[] = [];
    const stop = hub.watch({
      posted: () => {
        notified.push('posted');
        stop();
      },
      completed: () => notified.push('completed'),
    });
    a.send(send(1));
    expect(notified).toEqual(['posted']);
  });
});
