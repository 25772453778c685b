"""Reimplements numpy.random.default_rng(seed).permutation(n): SeedSequence, PCG64, masked rejection sampling."""

import array

WORD = 0xFFFFFFFF
LONG = (1 << 64) - 1
WIDE = (1 << 128) - 1
MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645


def seed_words(seed, count):
    """Returns `count` words of 32 bits from an integer, like SeedSequence(seed).generate_state."""
    entropy = [seed & WORD]
    while seed >> 32:
        seed >>= 32
        entropy.append(seed & WORD)
    constant = 0x43B0D7E5

    def mix_in(value):
        nonlocal constant
        value ^= constant
        constant = constant * 0x931E8875 & WORD
        value = value * constant & WORD
        return value ^ value >> 16

    def mix(left, right):
        value = (left * 0xCA01F9DD - right * 0x4973F715) & WORD
        return value ^ value >> 16

    pool = [mix_in(entropy[i] if i < len(entropy) else 0) for i in range(4)]
    for source in range(4):
        for target in range(4):
            if source != target:
                pool[target] = mix(pool[target], mix_in(pool[source]))
    for word in entropy[4:]:
        for target in range(4):
            pool[target] = mix(pool[target], mix_in(word))
    constant, out = 0x8B51F9DD, []
    for i in range(count):
        value = pool[i % 4] ^ constant
        constant = constant * 0x58F38DED & WORD
        value = value * constant & WORD
        out.append(value ^ value >> 16)
    return out


class Generator:
    """Yields the 32-bit halves of PCG64's numbers, the low half first."""

    def __init__(self, seed):
        words = seed_words(seed, 8)
        longs = [words[i] | words[i + 1] << 32 for i in range(0, 8, 2)]
        self.increment = ((longs[2] << 64 | longs[3]) << 1 | 1) & WIDE
        self.state = (self.increment + (longs[0] << 64 | longs[1])) & WIDE
        self.state = (self.state * MULTIPLIER + self.increment) & WIDE
        self.high = None

    def next32(self):
        if self.high is not None:
            value, self.high = self.high, None
            return value
        self.state = (self.state * MULTIPLIER + self.increment) & WIDE
        turn, value = self.state >> 122, (self.state >> 64 ^ self.state) & LONG
        value = (value >> turn | value << (-turn & 63)) & LONG
        self.high = value >> 32
        return value & WORD

    def up_to(self, most):
        """Returns an integer in [0, most], most below 2^32."""
        mask = (1 << most.bit_length()) - 1
        value = self.next32() & mask
        while value > most:
            value = self.next32() & mask
        return value


def permutation(seed, count):
    if count > WORD:
        raise OverflowError(f"{count} rows cannot be mixed: 2^32 - 1 is the most")
    rows, up_to = array.array("I" if array.array("I").itemsize == 4 else "L", range(count)), Generator(seed).up_to
    for i in range(count - 1, 0, -1):
        j = up_to(i)
        rows[i], rows[j] = rows[j], rows[i]
    return rows
