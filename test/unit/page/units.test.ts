import { describe, expect, it } from 'vitest';
import {
  byteRate,
  counted,
  duration,
  guid,
  interval,
  rate,
  si,
  sinceText,
  size,
  socketAddress,
  whole,
} from '#daemon/page/units';

describe('figures for people', () => {
  it.each([
    [0, '0 '],
    [7, '7 '],
    [0.5, '0.5 '],
    [999, '999 '],
    [999.6, '1 k'],
    [1000, '1 k'],
    [1234, '1.23 k'],
    [12_345, '12.3 k'],
    [99_960, '100 k'],
    [999_499, '999 k'],
    [999_500, '1 M'],
    [2.5e9, '2.5 G'],
    [-1500, '-1.5 k'],
  ])('%d has three digits and a prefix: %j', (value, text) => {
    expect(si(value)).toBe(text);
  });

  it('rates show their unit', () => {
    expect(byteRate(41_200_000)).toBe('41.2 MB/s');
    expect(byteRate(0)).toBe('0 B/s');
    expect(rate(0)).toBe('0/s');
    expect(rate(12_345)).toBe('12.3 k/s');
  });

  it('memory uses powers of 1024', () => {
    expect(size(64)).toBe('64 B');
    expect(size(65_536)).toBe('64 KiB');
    expect(size(3 * 1024 ** 2 + 512 * 1024)).toBe('3.5 MiB');
  });

  it('times have their two largest parts', () => {
    expect(duration(0)).toBe('0 s');
    expect(duration(65)).toBe('1 min 5 s');
    expect(duration(3600)).toBe('1 h');
    expect(duration(90_061)).toBe('1 d 1 h');
  });

  it.each([
    [0, '0 µs'],
    [85, '85 µs'],
    [1234, '1.23 ms'],
    [2_500_000, '2.5 s'],
  ])('%d microseconds are %j', (micros, text) => {
    expect(interval(micros)).toBe(text);
  });

  it('times on an axis are shown to the microsecond', () => {
    expect([0, 999, 2774, 1_250_000].map(sinceText)).toEqual([
      '0 µs',
      '999 µs',
      '2.774 ms',
      '1250.000 ms',
    ]);
  });

  it('numbers, GUIDs and addresses look as in rdma-core’s tools', () => {
    expect(whole(1_234_567)).toBe('1,234,567');
    expect(guid('0227c97b6152c23e')).toBe('0227:c97b:6152:c23e');
    expect(socketAddress({ address: '192.0.2.7', port: 7174 })).toBe('192.0.2.7:7174');
    expect(socketAddress({ address: '2001:db8::1', port: 1 })).toBe('[2001:db8::1]:1');
    expect(counted(1, 'client')).toBe('1 client');
    expect(counted(2, 'client')).toBe('2 clients');
  });
});
