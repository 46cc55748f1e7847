/** Timed actions of the connection manager: retries of refused dials, and kept ports. */
import { describe, expect, it } from 'vitest';
import { NEVER } from '#base/time';
import { CMEventType } from '#contract/verbs/enums';
import type { CmEffect } from '#daemon/iwarp/cm/cm-host';
import type { CmId } from '#daemon/iwarp/cm/cm-id';
import { PORT_KEPT_MICROS } from '#daemon/iwarp/cm/kept-ports';
import { CmRig, FakeQP, NO_WISHES } from '#test/support/cm-rig';

const START = 1000;

describe('a refused dial', () => {
  function dialing(patienceMs: number) {
    const rig = new CmRig();
    const id = rig.resolved();
    id.refusalPatienceMs = patienceMs;
    rig.manager.connect(id, new FakeQP(), NO_WISHES, rig.now);
    rig.drain();
    const dial = rig.effects.at(-1);
    if (dial?.type !== 'dial') throw new Error('no dial');
    const { endpoint } = dial;
    const refuse = (code = 'ECONNREFUSED'): number[] => {
      rig.manager.handleDialFailed(endpoint, code, rig.now);
      return rig.drain();
    };
    /** Time passes up to the next deadline. */
    const pass = (): CmEffect['type'] | undefined => {
      const before = rig.effects.length;
      rig.now = rig.manager.nextDeadline();
      rig.manager.handleDeadline(rig.now);
      rig.drain();
      return rig.effects[before]?.type;
    };
    return { rig, id, refuse, pass };
  }

  it('fails at once without patience', () => {
    const { rig, refuse } = dialing(0);
    expect(refuse()).toEqual([CMEventType.rejected]);
    expect(rig.lastEvent.error).toBe('ECONNREFUSED');
    expect(rig.manager.nextDeadline()).toBe(NEVER);
  });

  it('is retried from the same port after growing pauses until patience ends', () => {
    const { rig, id, refuse, pass } = dialing(300);
    const port = rig.network.ports.get(id);
    const attempts: number[] = [];
    for (;;) {
      rig.network.release(id);
      if (refuse().length > 0) break;
      expect(pass()).toBe('dial');
      expect(rig.network.ports.get(id)).toBe(port);
      attempts.push((rig.now - START) / 1000);
    }
    expect(attempts).toEqual([5, 15, 35, 75, 155, 235]);
    expect(rig.lastEvent).toMatchObject({ type: CMEventType.rejected, error: 'ECONNREFUSED' });
  });

  it('of several is retried in time, whichever of them have ended', () => {
    const { rig, refuse } = dialing(300);
    const others = [0, 1].map(() => {
      const id = rig.resolved();
      id.refusalPatienceMs = 300;
      rig.manager.connect(id, new FakeQP(), NO_WISHES, rig.now);
      rig.drain();
      return id;
    });
    expect(refuse()).toEqual([]);
    for (const id of others) rig.manager.destroy(id, rig.now);
    rig.drain();
    expect(rig.manager.nextDeadline()).toBeLessThanOrEqual(START + 5_000);
    rig.now = START + 4_000;
    rig.manager.handleDeadline(rig.now);
    expect(rig.manager.nextDeadline()).toBe(START + 5_000);
  });

  it('that times out together with hundreds fails with some of them, the rest at the next checks', () => {
    const rig = new CmRig();
    const count = 1000;
    for (let dial = 0; dial < count; dial += 1) {
      rig.manager.connect(rig.resolved(), new FakeQP(), NO_WISHES, rig.now);
    }
    rig.drain();
    rig.now = rig.manager.nextDeadline();
    const failed: number[] = [];
    while (rig.manager.nextDeadline() <= rig.now) {
      rig.manager.handleDeadline(rig.now);
      failed.push(rig.drain().length);
      rig.now += 1000;
    }
    expect(Math.max(...failed)).toBeLessThan(count / 5);
    expect(failed.reduce((sum, each) => sum + each, 0)).toBe(count);
    expect(rig.lastEvent).toMatchObject({ type: CMEventType.unreachable, error: 'ETIMEDOUT' });
    expect(rig.manager.nextDeadline()).toBe(NEVER);
  });

  it('is not retried after another failure', () => {
    const { refuse } = dialing(300);
    expect(refuse('EHOSTUNREACH')).toEqual([CMEventType.unreachable]);
  });

  it('fails if its port was taken meanwhile', () => {
    const { rig, refuse, pass } = dialing(300);
    refuse();
    rig.network.refusal = 'EADDRINUSE';
    expect(pass()).toBeUndefined();
    expect(rig.lastEvent).toMatchObject({ type: CMEventType.connectError, error: 'EADDRINUSE' });
  });

  it('is cancelled with its id, and at the deadline of the connection', () => {
    const destroyed = dialing(300);
    destroyed.refuse();
    destroyed.rig.manager.destroy(destroyed.id, destroyed.rig.now);
    expect(destroyed.rig.manager.nextDeadline()).toBe(NEVER);
    const late = dialing(60_000);
    while (late.refuse().length === 0 && late.pass() === 'dial');
    expect(late.rig.lastEvent).toMatchObject({ type: CMEventType.unreachable, error: 'ETIMEDOUT' });
    expect(late.rig.now).toBe(START + 10_000_000);
  });
});

describe('the port of a listener that is destroyed', () => {
  const KEEPER = {};
  const AT = { address: '10.0.0.1', port: 4791 };

  function gone(keeper: object | undefined): { rig: CmRig; old: CmId } {
    const rig = new CmRig();
    const old = rig.listening();
    old.portKeeper = keeper;
    rig.manager.destroy(old, rig.now);
    return { rig, old };
  }

  function bound(rig: CmRig, keeper: object | undefined): CmId {
    const id = rig.manager.createId(undefined);
    id.portKeeper = keeper;
    rig.manager.bindAddr(id, AT);
    rig.manager.assertDeepInvariants();
    return id;
  }

  it('is released with an id that has no keeper', () => {
    const { rig } = gone(undefined);
    expect(rig.network.ports.size).toBe(0);
    expect(rig.manager.nextDeadline()).toBe(NEVER);
  });

  it('is held until its deadline', () => {
    const { rig, old } = gone(KEEPER);
    expect(rig.network.ports.get(old)).toBe('10.0.0.1 4791');
    expect(rig.network.listening.size).toBe(0);
    expect(rig.manager.mayHoldPort(old)).toBe(true);
    const due = rig.now + PORT_KEPT_MICROS;
    expect(rig.manager.nextDeadline()).toBe(due);
    rig.manager.handleDeadline(due - 1);
    expect(rig.network.ports.size).toBe(1);
    rig.manager.handleDeadline(due);
    expect(rig.network.ports.size).toBe(0);
    expect(rig.manager.mayHoldPort(old)).toBe(false);
    expect(rig.manager.nextDeadline()).toBe(NEVER);
  });

  it('is handed over to the next id of its keeper', () => {
    const { rig, old } = gone(KEEPER);
    const id = bound(rig, KEEPER);
    expect([...rig.network.ports.keys()]).toEqual([id]);
    expect(rig.manager.mayHoldPort(old)).toBe(false);
    expect(rig.manager.nextDeadline()).toBe(NEVER);
  });

  it('yields to other users, and is released with its keeper', () => {
    const { rig } = gone(KEEPER);
    const id = bound(rig, {});
    expect([...rig.network.ports.keys()]).toEqual([id]);
    const { rig: other, old } = gone(KEEPER);
    expect(other.manager.portsKeptFor({})).toEqual([]);
    expect(other.manager.portsKeptFor(KEEPER)).toEqual([old]);
    other.manager.releasePort(old);
    expect(other.network.ports.size).toBe(0);
    expect(other.manager.portsKeptFor()).toEqual([]);
  });

  it('stays with the id that holds it meanwhile', () => {
    const { rig, old } = gone(KEEPER);
    const id = bound(rig, KEEPER);
    rig.manager.releasePort(old);
    expect([...rig.network.ports.keys()]).toEqual([id]);
  });

  it('is released with some of hundreds that are due together, the rest at the next checks', () => {
    const rig = new CmRig();
    const count = 1000;
    for (let port = 1; port <= count; port += 1) {
      const id = rig.manager.createId(undefined);
      id.portKeeper = KEEPER;
      rig.manager.bindAddr(id, { address: AT.address, port });
      rig.manager.listen(id, 1);
      rig.manager.destroy(id, rig.now);
    }
    rig.now += PORT_KEPT_MICROS;
    let looks = 0;
    while (rig.manager.nextDeadline() <= rig.now) {
      rig.manager.handleDeadline(rig.now);
      looks += 1;
    }
    expect(looks).toBeGreaterThan(5);
    expect(rig.network.ports.size).toBe(0);
  });
});
