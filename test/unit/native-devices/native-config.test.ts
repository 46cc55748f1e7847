import { describe, expect, it } from 'vitest';
import { checkedNativeDevices, freeName, parseNativeDevice } from '#daemon/native/native-config';

const refusal = (message: RegExp) =>
  expect.objectContaining({ code: 'EINVAL', message: expect.stringMatching(message) });

describe('NAME=native:DEVICE', () => {
  it.each([
    ['fast=native:siw0', { name: 'fast', native: 'siw0', addresses: [] }],
    ['a=native:b,10.0.0.1,::0001', { name: 'a', native: 'b', addresses: ['10.0.0.1', '::1'] }],
  ])('reads %s', (text, config) => {
    expect(parseNativeDevice(text)).toEqual(config);
  });

  it.each(['siw0', 'siw0=127.0.0.1', 'native:siw0', '='])('ignores %s', (text) => {
    expect(parseNativeDevice(text)).toBeUndefined();
  });

  it.each([
    ['=native:siw0', /bad device name/],
    ['a=native:', /bad native device name/],
    ['a=native:si w', /bad native device name/],
    ['a=native:b,', /is not the address of an interface/],
    ['a=native:b,0.0.0.0', /is not the address of an interface/],
  ])('refuses %s', (text, message) => {
    expect(() => parseNativeDevice(text)).toThrow(refusal(message));
  });
});

describe('native devices together', () => {
  const one = { name: 'a', native: 'siw0', addresses: [] };

  it.each([
    ['a name twice', [one, { ...one, native: 'siw1' }], [], /two devices are called a/],
    ['the name of an emulated one', [one], ['a'], /two devices are called a/],
    ['a device twice', [one, { ...one, name: 'b' }], [], /siw0 is named twice/],
    [
      'an address twice',
      [
        { ...one, addresses: ['::1'] },
        { name: 'b', native: 'c', addresses: ['0:0::1'] },
      ],
      [],
      /two devices have the address ::1/,
    ],
  ])('fail with EINVAL for %s', (_name, configs, others, message) => {
    expect(() => checkedNativeDevices(configs, others)).toThrow(refusal(message));
  });

  it('get a free name if none was given', () => {
    expect(freeName('siw0', new Set())).toBe('siw0');
    expect(freeName('siw0', new Set(['siw0']))).toBe('siw0-native');
    expect(freeName('siw0', new Set(['siw0', 'siw0-native']))).toBe('siw0-native2');
  });
});
